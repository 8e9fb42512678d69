package statemark.common

import scala.collection.immutable.ArraySeq

/** The marks by which a store knows the file that brought a version to it. The code that writes or reads that file
  * takes the fingerprint then, and it goes with the version from there on, to disk as well. A later process compares
  * it with the file. The meaning of its bytes is known to the code that took it.
  *
  * @param kind says how the bytes are to be read, 0 to 127
  */
final case class Fingerprint(kind: Byte, bytes: ArraySeq[Byte])
