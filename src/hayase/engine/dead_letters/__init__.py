"""Dead letters of a home: which are open, where they can go, how they are edited, replayed and dropped."""
