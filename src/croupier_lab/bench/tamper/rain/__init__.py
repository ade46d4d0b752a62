"""One of RAIN's two servers cheats, alone or with clients that help it (`croupier bench tamper --system rain`).

`round` and `trial` play a round with a cheat in it; `messages`, `shuffle`, `dealt_shares` and `rosters` are the ways to
cheat, by what is altered; `cheating_server` goes on after an alteration as if it were right; `tampering` tries them all
and counts.
"""
