// Package wire is OpenAI's wire format seen as bytes. It scans a request once
// without changing it, splices small edits into it, reads ids, usage and text
// from answers and stream chunks, cuts event streams into events, and builds
// error bodies and frames.
//
// It promises that what [Scan] accepts means the same to every reader: no name
// appears twice, none differs from a priced one only in spelling, all text is
// valid UTF-8, and every number we price from is an exact integer. It promises
// to hand on everything it was not asked to change byte for byte.
//
// It does not know what anything costs, does not count tokens, does not judge
// whether a model exists, and performs no input or output.
//
// The JSON reader is our own: over bodies of 200 KB it takes half of jsontext's
// time on prose, base64 and text beyond ASCII, and the same on text where every
// tenth character is escaped. jsontext is the judge of it in the tests: both
// accept the same documents.
package wire
