/* What the terms of shells in the kernels of tissue share with the host; see gpu/dynamics/shell_terms.clh. */
#ifndef PALPATE_GPU_SHARED_SHELL_TYPES_H_
#define PALPATE_GPU_SHARED_SHELL_TYPES_H_

/* Bits of PALPATE_SHELL: what shells of the scene have. */
#define PALPATE_SHELL_ST_VENANT_KIRCHHOFF 1u
#define PALPATE_SHELL_NEO_HOOKEAN 2u
#define PALPATE_SHELL_LIMITED 4u    /* a strain limit */
#define PALPATE_SHELL_VISCOUS 8u    /* stiffness-proportional damping */
#define PALPATE_SHELL_HINGES 16u    /* bending by dihedral angles */
#define PALPATE_SHELL_QUADRATIC 32u /* quadratic bending */

/* Reals of a corner (triangle, vertex), of the two hinges at it, and of a vertex of a quadratic hinge. */
#define PALPATE_MEMBRANE_REALS 12u
#define PALPATE_MEMBRANE_STARTS 3u /* Green strain at the start of a step */
#define PALPATE_HINGE_REALS 6u
#define PALPATE_HINGE_STARTS 2u /* angles at the start of a step */
#define PALPATE_QUADRATIC_REALS 6u
/* Ranges of blocks of a vertex: corners, quadratic hinges. */
#define PALPATE_SHELL_RANGES 2u

/* Beyond its strain limit a membrane is so many times as stiff as the stiffer of warp and weft. */
#define PALPATE_SHELL_STIFFENING 20.0f
#define PALPATE_SHELL_NO_LIMIT 1e30f

#endif /* PALPATE_GPU_SHARED_SHELL_TYPES_H_ */
