"""What a few labels can tell: which row to label next, what that would bring, which label is wrong, which recipe."""
