"""What Hayase shows in a terminal: views as pure functions of data, and the displays that keep them on screen."""
