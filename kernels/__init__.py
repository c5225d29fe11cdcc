"""The model side of Syncscope: kernels and their host twins, model graphs, weights, tokenizers."""
