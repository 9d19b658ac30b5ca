"""The mirror: takes copies of live requests, sends each to every arm at once, measures, forgets the content.

Nothing in this package imports the operator; the operator imports `config`, `directive`, `evidence` and
`reasons` from here, which depend on nothing but `msgspec`.
"""
