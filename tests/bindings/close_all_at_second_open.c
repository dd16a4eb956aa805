/* Works in the probe; closes every descriptor at the second open. */
#define ON_OPEN(count) if ((count) == 2) close_everything()
#include "base.h"
