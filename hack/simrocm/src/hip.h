/* hip.h - shared between the files of libamdhip64.so. */
#ifndef SIMROCM_HIP_H
#define SIMROCM_HIP_H

#include "core.h"

/* sim_error keeps the thread's last error for hipGetLastError and gives it back. */
int sim_error(int error);
void sim_device_wait(int device);

#endif
