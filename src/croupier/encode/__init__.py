"""How an update becomes coordinates on the wire, and back: floats, fixed point, residues, signs, permuted weights.

`encoder` is the slot that a description fills under `protocol.encode`. `floats` sends numbers as they are; `fixed` and
`residues` (modulo `moduli`) make integers on one `grid` so that sums are exact; `signs` keeps one bit a coordinate;
`hidden` permutes along a network's `symmetry` (of `axes`, in `blocks`), by moves that `shuffled` and `permuting` work
out. Pure functions on vectors: no file, no socket, no clock.
"""
