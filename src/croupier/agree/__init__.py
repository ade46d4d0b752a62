"""How clients come to one secret through a relay that must not know it, and what each of them keeps of that.

`board` is how they talk, turn by turn; `commit_reveal` a joint secret that nobody chooses, `pbft/` the paper's form
with a head; `agreement` calls either, attempt after attempt. `epochs` and `each_round` say when a run agrees, `welcome`
and `move_model` what newcomers get, `standing` what a client must remember to stay honest. `coordinates` uses the
secret: models become plain for training, and updates are permuted before they leave.

Only encoders that hide coordinates need this (`encode.hidden`); the round loop calls it by their hooks.
"""
