"""Text from a trained model: `cached` computes logits, `sampling` picks tokens, `engine` loops."""
