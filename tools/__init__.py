"""Small scripts for whoever works on the repository; nothing in the product or the laboratory imports them."""
