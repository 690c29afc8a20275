"""Constitutional AI: answers criticised and revised by written principles, and preferences labelled by them."""
