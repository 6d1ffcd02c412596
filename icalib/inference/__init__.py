"""The maths without modules."""
