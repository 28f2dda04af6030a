#include "gpu/collision/kdop.clh"
#include "gpu/shared/kdop.h"

float4 volume_centre(global const float* volume) {
#if AXES > 0
  return (float4)(0.5f * volume[0] + 0.5f * volume[AXES], 0.5f * volume[1] + 0.5f * volume[AXES + 1],
                  0.5f * volume[2] + 0.5f * volume[AXES + 2], 0.0f);
#else
  return (float4)(volume[0], volume[1], volume[2], 0.0f);
#endif
}

/* Moments of the centres in each of the chunks, one a work-item. Short inner sums keep the rounding error of long ones down. */
kernel void centre_moments(uint count, uint chunk_length, global const float* volumes, global CentreMoments* moments) {
  const size_t chunk = get_global_id(0);
  const size_t begin = chunk * chunk_length;
  const size_t end = min(begin + chunk_length, (size_t)count);
  float4 reference = (float4)(0.0f);
  uint used = 0;
  float4 sum = (float4)(0.0f);
  float4 diagonal = (float4)(0.0f);
  float4 mixed = (float4)(0.0f);
  for (size_t run = begin; run < end; run += 256) {
    float4 run_sum = (float4)(0.0f);
    float4 run_diagonal = (float4)(0.0f);
    float4 run_mixed = (float4)(0.0f);
    const size_t run_end = min(run + 256, end);
    for (size_t i = run; i < run_end; ++i) {
      global const float* volume = volumes + i * VOLUME_FLOATS;
      if (is_empty_volume(volume)) continue;
      const float4 centre = volume_centre(volume);
      if (used++ == 0) reference = centre;
      const float4 d = centre - reference;
      run_sum += d;
      run_diagonal += d * d;
      run_mixed += d.xxyw * d.yzzw;
    }
    sum += run_sum;
    diagonal += run_diagonal;
    mixed += run_mixed;
  }
  moments[chunk].reference = (float4)(reference.xyz, (float)used);
  moments[chunk].sum = sum;
  moments[chunk].diagonal = diagonal;
  moments[chunk].mixed = mixed;
}
