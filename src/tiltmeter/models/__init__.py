"""Language models that are asked something: chat models here or behind a server, and judges."""
