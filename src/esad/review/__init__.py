"""The label loop in a web page: judge the rows that help most, fit again, compare, keep or roll back."""
