"""How clients come to one secret through a relay that must not know it, and what each of them keeps of that.

In this room a *rule* is the order in which a round's hidden units lie, and it is derived from the secret. `board` is
how clients talk, turn by turn; `commit_reveal` makes a joint secret that nobody chooses, `pbft/` is the paper's form
with a head; `agreement` says what a call for either is. `conduct`, `one_epoch` and `each_round` decide when a run
agrees on what, `called` is what they call for, `seats` what each party then plays, `epochs` all of it in a simulation.
`welcome` and `move_model` are for newcomers, `first_model` and `alike` for models that clients compute, and `standing`
is what a client must remember to stay honest. `coordinates` uses the secret: models become plain for training, and
updates are permuted before they leave.

Only runs whose encoder hides coordinates need this (`encode.hidden`): a simulation's round loop calls it by the
encoder's hooks, and deployed services by `service.chair` and `service.plans`.
"""
