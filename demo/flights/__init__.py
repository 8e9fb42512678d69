"""The flights out of New York in 2013 as streams, on two state store providers."""
