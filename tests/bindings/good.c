/* Does everything right, and gives the slave as a descriptor. */
#include "base.h"
