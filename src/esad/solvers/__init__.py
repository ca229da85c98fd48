"""Models that are solved for rather than trained by gradient descent; every one is a `RowModel`."""
