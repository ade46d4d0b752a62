# Who takes part. Read by ceremony.sh and run.sh; CROUPIER is the command, PORT the first of four ports.
CROUPIER=${CROUPIER:-croupier}
PORT=${PORT:-7443}
ORGANISATIONS="north south laboratory"
CLIENTS="north-hospital south-hospital laboratory"
HOSTS="server sum1 sum2 sum3"

home() { # the organisation whose machine a party runs on
    case $1 in
        north-hospital | sum1) echo north ;;
        south-hospital | sum2) echo south ;;
        *) echo laboratory ;;
    esac
}
key() { echo "$(home "$1")/keys/$1/$1.key"; }
