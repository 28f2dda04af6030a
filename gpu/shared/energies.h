/* The elastic energies of tets, one row each, for kernels, solver, scenes, API and command line:
   ENERGY(name, Name, API, code, text)
     name  its functions in gpu/dynamics/elasticity.clh: name_corner_energy, add_name_corner
     Name  in C++: k##Name
     API   MATERIAL_MODEL_##API in scene.proto
     code  0 to 14; it stands in the upper bits of a corner's tet
     text  on the command line
   Terms are added in this order. docs/extending.md, "An energy". */
#ifndef PALPATE_GPU_SHARED_ENERGIES_H_
#define PALPATE_GPU_SHARED_ENERGIES_H_

/* clang-format off */
#define PALPATE_ELASTIC_ENERGIES(ENERGY)                                             \
  ENERGY(neo_hookean, StableNeoHookean, STABLE_NEO_HOOKEAN, 0, "neo-hookean")         \
  ENERGY(corotated, Corotated, COROTATED_LINEAR, 1, "corotated")                      \
  ENERGY(linear, Linear, LINEAR, 2, "linear")                                         \
  ENERGY(green, StVenantKirchhoff, ST_VENANT_KIRCHHOFF, 3, "st-venant-kirchhoff")     \
  ENERGY(springs, MassSpring, MASS_SPRING, 4, "mass-spring")
/* clang-format on */

/* Codes of those that read the rotation of the polar decomposition, as bits. */
#define PALPATE_ROTATED_ENERGIES 0x2u
/* Codes of those whose force at a corner is a stress, the same for all corners of a tet, times the rest gradient g there, as bits. */
#define PALPATE_STRESS_ENERGIES 0xfu

#define PALPATE_ENERGY_CODES 16u /* fit into the bits above PALPATE_ENERGY_SHIFT */
#define PALPATE_ENERGY_SHAPE 15u /* none: the vertices are drawn to goals, see gpu/dynamics/shape_goals.cl */
#define PALPATE_ENERGY_SHIFT 28
#define PALPATE_TET_MASK 0x0fffffffu

#endif
