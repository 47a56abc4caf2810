package main

import _ "embed"

// exampleRecording is the example node, made by TestExample with -update.
//
//go:embed example.rec
var exampleRecording []byte
