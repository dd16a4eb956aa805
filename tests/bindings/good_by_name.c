/* Does everything right, and gives the slave by its name. */
#define BY_NAME
#include "base.h"
