// Package sdk compares what OpenAI's SDK can send with what this proxy knows.
package sdk
