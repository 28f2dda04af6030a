/* Node-smoothed tets: what host and kernels share; docs/algorithms/smoothing.md. */
#ifndef PALPATE_GPU_SHARED_SMOOTHING_TYPES_H_
#define PALPATE_GPU_SHARED_SMOOTHING_TYPES_H_

/* Share of mu that each tet keeps of its own, as of a material with lambda = 0; the rest acts on the mean deformation gradients. */
#define PALPATE_SMOOTHING_SHARE 0.25

#define PALPATE_SMOOTHING_REALS 4   /* of an entry of a vertex: rest gradient, factor of the block */
#define PALPATE_SMOOTHING_STATES 3  /* float4 of a domain: rows of F; in w V mu, V lambda, the energy */
#define PALPATE_SMOOTHING_STRAINS 2 /* float4 of a domain: C xx xy xz yy, yz zz and the viscosity/dt that acts */

#endif
