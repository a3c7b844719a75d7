"""Lanes on Spark: the session, its Python processes, the lane's source, `format("hayase")`. Only this package imports pyspark."""
