"""From a table or pictures to the numbers a network sees; fitted state is arrays + JSON."""
