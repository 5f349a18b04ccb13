"""Text from a trained model: `sampling` chooses tokens, `folded` gives logits, `engine` loops."""
