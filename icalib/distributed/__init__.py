"""Ray and DeepSpeed, thin."""
