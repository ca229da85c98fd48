"""The scikit-learn face, and what methods of one kind share: deep, solved, hybrid, stacked, from a stream."""
