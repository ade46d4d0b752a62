"""Computing on what nobody sees alone: shares, tags, dealt material, shuffles of shared rows, and gates on shares.

The arithmetic lies at the bottom (`field`, `group`, `ring`, `boolean`, `shares`, `curve`), what makes altering it
visible beside it (`tags`, `authentic`, `signatures`), and what is handed out beforehand above (`dealer`,
`dealt_shares`, `deal_shares`, `occasion`). Shuffles of rows that two servers share are `translate`, `correlate` and
`onion`; those of a longer chain are `mix`, and `elgamal` with `shuffle_proof`. `tallies` adds up shares of hidden rows.
Gates are `products`, `compare`, `ranks`, `signs` and `trust`. Secrets travel in boxes (`seal`), are split (`escrow`) or
made jointly (`joint`).

Nothing here says which parties there are, in what order a round goes, or how letters travel: `place/` and `agree/`
write flows that use these, and `service` signs and seals with `signatures` and `seal`.
Where a docstring says "Reveals:", it names what is opened, and to whom.
"""
