/* What the terms of NURBS shells in kernels share with the host; see gpu/dynamics/nurbs_shell_terms.clh. */
#ifndef PALPATE_GPU_SHARED_NURBS_SHELL_TYPES_H_
#define PALPATE_GPU_SHARED_NURBS_SHELL_TYPES_H_

/* Reals of a Gauss point: its five vectors a1 a2 a11 a22 a12 (x, y, z each), and what it is at rest. */
#define PALPATE_NURBS_VECTOR_REALS 15u
#define PALPATE_NURBS_REST_REALS 9u
/* Strain and curvature at the start of a step. */
#define PALPATE_NURBS_START_REALS 6u
/* Of a control point at a Gauss point: derivatives of its basis function by 1, 2, 11, 22, 12. */
#define PALPATE_NURBS_BASIS_REALS 5u

#endif /* PALPATE_GPU_SHARED_NURBS_SHELL_TYPES_H_ */
