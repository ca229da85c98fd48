"""Tables inside: typed columns, their schema, what is learned of them, and the numbers a method sees."""
