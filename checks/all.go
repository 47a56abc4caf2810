package checks

// all is every check, from the hardware upward: the order of reports. A new
// check is one file and one line here.
var all = []Check{
	gpuPresent,
	rdmaDevicePresent,
}
