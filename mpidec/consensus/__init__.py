"""Average consensus, the heart of every gossip rule: the problem, what theory says of it, and the search for gamma."""
