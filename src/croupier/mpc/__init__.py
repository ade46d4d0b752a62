"""Computing on what nobody sees alone: shares, tags, dealt material, shuffles of shared rows, and gates on shares.

The arithmetic lies at the bottom (`field`, `group`, `ring`, `boolean`, `shares`), what makes altering it visible beside
it (`tags`, `authentic`, `signatures`), and what is handed out beforehand above (`dealer`, `dealt_shares`,
`deal_shares`, `occasion`). Shuffles of rows that two servers share are `translate`, `correlate` and `onion`; gates are
`products`, `compare`, `ranks`, `signs` and `trust`.

Nothing here knows a party's name, a round's order or a network: `place/` and `agree/` write flows that use these. Every
function that opens something says in its docstring what it reveals, and to whom.
"""
