# The image and the wheels: docker buildx bake [image | wheels | release]

variable "VERSION" {
  default = "0.1.0"
}

variable "IMAGE" {
  default = "glle"
}

# Files for builds behind a firewall (docs/how-to/deploy.md).
variable "PIP_CONF" {
  default = ""
}

variable "CA_PEM" {
  default = ""
}

group "default" {
  targets = ["image"]
}

target "base" {
  context = "."
  secret = concat(
    PIP_CONF == "" ? [] : ["type=file,id=pip.conf,src=${PIP_CONF}"],
    CA_PEM == "" ? [] : ["type=file,id=ca.pem,src=${CA_PEM}"],
  )
}

# For this machine, under the name that docker-compose.yml expects.
target "image" {
  inherits = ["base"]
  tags     = ["${IMAGE}:${VERSION}", "${IMAGE}:latest"]
}

# The wheels of both distributions, in out/wheels.
target "wheels" {
  inherits = ["base"]
  target   = "wheels"
  output   = ["type=local,dest=out/wheels"]
}

# For a registry, with a record of its build and a list of its contents.
target "release" {
  inherits  = ["base"]
  tags      = ["${IMAGE}:${VERSION}"]
  platforms = ["linux/amd64", "linux/arm64"]
  attest    = ["type=provenance,mode=max", "type=sbom"]
}
