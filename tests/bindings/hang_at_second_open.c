/* Works in the probe; never comes back from the second open. */
#define ON_OPEN(count) while ((count) == 2) pause()
#include "base.h"
