"""Dead letters of a home: finding open ones, checking where they can be replayed, editing, replaying and dropping them."""
