"""`wager tune`: how a model runs fastest on this machine, measured."""
