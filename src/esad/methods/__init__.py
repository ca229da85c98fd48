"""The methods, one file each; `esad.registry` finds them by folder."""
