// Package openapi compares the answers of the administrators' API with the OpenAPI
// document that the API serves.
package openapi
