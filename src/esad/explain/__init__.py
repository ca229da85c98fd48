"""Which columns or pixels make a score, what was expected in their place, and which known case it resembles."""
