"""What every room needs and that needs no other room: writing files whole, randomness, checks of arguments, words."""
