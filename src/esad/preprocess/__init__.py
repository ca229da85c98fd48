"""One face over tables and pictures: from what a user gives to the rows a method works on."""
