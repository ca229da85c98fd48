"""Networks, stacked over members: every tensor is (members, batch, *features)."""
