/* The rules all kernels share; cmake/embed_kernel.py puts them in front of every kernel file. */
#if defined(__OPENCL_VERSION__) || defined(__OPENCL_C_VERSION__)
/* Contraction would make results depend on the compiler; where a fused operation is wanted, fma() is written out. */
#pragma OPENCL FP_CONTRACT OFF
#endif
