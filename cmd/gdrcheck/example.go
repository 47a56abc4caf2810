package main

import _ "embed"

//go:generate go test -run ^TestExample$ . -update

// exampleRecording is the example node, made by TestExample with -update.
//
//go:embed example.rec
var exampleRecording []byte
