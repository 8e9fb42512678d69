package statemark.spark.process

import java.io._
import scala.util.Using

/** Messages between JVMs as bytes: what reads messages on an executor does not see jars that the session has added.
  */
object ObjectBytes {
  def encode(message: AnyRef): Array[Byte] = {
    val bytes = new ByteArrayOutputStream
    Using.resource(new ObjectOutputStream(bytes))(_.writeObject(message))
    bytes.toByteArray
  }

  /** Reads what [[encode]] wrote, with classes that this class's loader sees. */
  def decode[A](bytes: Array[Byte]): A = {
    val in = new ObjectInputStream(new ByteArrayInputStream(bytes)) {
      override def resolveClass(description: ObjectStreamClass): Class[_] =
        try Class.forName(description.getName, false, ObjectBytes.getClass.getClassLoader)
        catch { case _: ClassNotFoundException => super.resolveClass(description) }
    }
    try in.readObject().asInstanceOf[A]
    finally in.close()
  }
}
