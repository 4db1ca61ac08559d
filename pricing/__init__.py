"""What renting a GPU costs: offers, speed, time, money and the plan that follows from them."""
